; family: liquids
; capacity: 48
; A click drops a rock down its column. Rocks on the ground lift the surface of the water by a
; row for each three; a rock that meets the crate stays in it, and the crate sinks by a row for each.
(program
  (= GRID_SIZE 7)
  (= background "lightcyan")
  (object Water (: top Number)
    (map (--> spot (Cell (.. spot x) (.. spot y) "blue"))
      (rect (Position 0 top) (Position 7 7))))
  (object Crate (: load Number)
    (list (Cell 0 0 "brown") (Cell 0 1 "brown") (Cell 1 1 "brown") (Cell 2 1 "brown") (Cell 2 0 "brown")))
  (object Rock (Cell 0 0 "gray"))

  (= surface (fn (stones)
    (max 2 (- 4 (/ (length (filter (--> rock (> (.. (.. rock origin) y) 4)) stones)) 3)))))
  (= rests (fn (rock stones)
    (| (== (.. (.. rock origin) y) 6)
       (any (--> other (== (.. other origin) (Position (.. (.. rock origin) x) (+ 1 (.. (.. rock origin) y))))) stones))))

  (: water Water)
  (= water (initnext (Water 4 (Position 0 0)) (Water (surface (prev rocks)) (Position 0 0))))
  (: crate Crate)
  (= crate (initnext (Crate 0 (Position 2 3))
    (updateObj
      (updateObj (prev crate) "load" (+ (.. (prev crate) load) (length (filter (--> rock (intersects rock (prev crate))) (prev rocks)))))
      "origin" (Position 2 (min 5 (+ (- (.. water top) 1) (.. (prev crate) load)))))))
  (: rocks (List Rock))
  (= rocks (initnext (list)
    (map (--> rock (if (rests rock (prev rocks)) then rock else (moveDown rock)))
      (filter (--> rock (! (intersects rock (prev crate)))) (prev rocks)))))

  (on (& clicked (< (length (prev rocks)) 14))
    (if (in (Position (.. click x) 0) (map (--> rock (.. rock origin)) (prev rocks)))
      then rocks
      else (= rocks (addObj (prev rocks) (Rock (Position (.. click x) 0)))))))
