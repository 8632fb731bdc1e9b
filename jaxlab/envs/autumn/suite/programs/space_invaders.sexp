; family: movers
; capacity: 12
; Rows of invaders sway from side to side. Left and right move the hero and a click fires; every 15 steps one of the
; invaders, drawn at random, fires back. Whatever is hit is gone.
(program
  (= GRID_SIZE 16)
  (object Invader (Cell 0 0 "limegreen"))
  (object Hero (list (Cell 0 0 "blue") (Cell 1 0 "blue") (Cell 2 0 "blue")))
  (object Shot (Cell 0 0 "red"))
  (object Bomb (Cell 0 0 "orange"))

  (= sway (fn (time) (if (< (% time 10) 5) then 1 else -1)))
  (= alive (fn (things dangers) (filter (--> thing (! (intersects thing dangers))) things)))

  (: clock Number)
  (= clock (initnext 0 (% (+ (prev clock) 1) 30)))
  (: front (List Invader))
  (= front (initnext (map (--> k (Invader (Position (+ 1 (* 3 k)) 4))) (range 0 4))
    (map (--> one (move one (Position (sway (prev clock)) 0))) (alive (prev front) (prev shots)))))
  (: rear (List Invader))
  (= rear (initnext (map (--> k (Invader (Position (+ 5 (* 3 k)) 2))) (range 0 4))
    (map (--> one (move one (Position (- 0 (sway (prev clock))) 0))) (alive (prev rear) (prev shots)))))
  (: heroes (List Hero))
  (= heroes (initnext (list (Hero (Position 7 15))) (alive (prev heroes) (prev bombs))))
  (: shots (List Shot))
  (= shots (initnext (list)
    (filter isWithinBounds (map moveUp (alive (alive (prev shots) (prev front)) (prev rear))))))
  (: bombs (List Bomb))
  (= bombs (initnext (list) (filter isWithinBounds (map moveDown (prev bombs)))))

  (on left (= heroes (updateObj (alive (prev heroes) (prev bombs)) moveLeftNoCollision)))
  (on right (= heroes (updateObj (alive (prev heroes) (prev bombs)) moveRightNoCollision)))
  (on (& clicked (& (< (length (prev shots)) 4) (> (length (prev heroes)) 0)))
    (= shots (addObj (prev shots) (Shot (movePos (.. (head (prev heroes)) origin) (Position 1 -1))))))
  (on (& (== (% (prev clock) 15) 14) (> (+ (length (prev front)) (length (prev rear))) 0))
    (= bombs (addObj (filter isWithinBounds (map moveDown (prev bombs)))
      (Bomb (.. (moveDown (uniformChoice (addObj (prev rear) (prev front)))) origin))))))
