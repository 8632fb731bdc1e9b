; family: movers
; Arrows drive one magnet about another that is fixed. In line with it, unlike ends attract it; above or
; below, like ends push it away. A click turns it round, and what pulled now pushes.
(program
  (= GRID_SIZE 16)
  (object Magnet (: turned Bool)
    (list (Cell 0 0 (if turned then "blue" else "red")) (Cell 1 0 (if turned then "red" else "blue"))))

  (: fixed Magnet)
  (= fixed (Magnet false (Position 7 7)))

  (= inside (fn (thing moved) (if (& (isWithinBounds moved) (! (intersects moved fixed))) then moved else thing)))
  (= offset_x (fn (thing) (- (.. (.. thing origin) x) 7)))
  (= offset_y (fn (thing) (- (.. (.. thing origin) y) 7)))
  (= in_line (fn (thing) (& (== (offset_y thing) 0) (<= (abs (offset_x thing)) 5))))
  (= across (fn (thing) (& (<= (abs (offset_x thing)) 1) (<= (abs (offset_y thing)) 4))))
  (= pole (fn (thing) (if (.. thing turned) then -1 else 1)))
  (= drawn (fn (thing)
    (if (in_line thing)
      then (inside thing (move thing (Position (* (- 0 (pole thing)) (sign (offset_x thing))) 0)))
      else (if (across thing)
        then (inside thing (move thing (Position 0 (* (pole thing) (sign (offset_y thing))))))
        else thing))))

  (: driven Magnet)
  (= driven (initnext (Magnet false (Position 2 3)) (drawn (prev driven))))

  (on left (= driven (inside (prev driven) (moveLeft (prev driven)))))
  (on right (= driven (inside (prev driven) (moveRight (prev driven)))))
  (on up (= driven (inside (prev driven) (moveUp (prev driven)))))
  (on down (= driven (inside (prev driven) (moveDown (prev driven)))))
  (on clicked (= driven (updateObj (prev driven) "turned" (! (.. (prev driven) turned))))))
