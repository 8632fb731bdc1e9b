; family: hidden state
; Fireflies wander at random while they glow, and rest unseen while they do not. A click where one is catches
; it, and the jar below fills by one; up lets them all out again.
(program
  (= GRID_SIZE 9)
  (object Fly (: glows Bool) (Cell 0 0 (if glows then "yellow" else "black")))
  (object Jar (: held Number) (map (--> k (Cell k 0 (if (< k held) then "gold" else "darkgray"))) (range 0 5)))

  (= fluttered (fn (fly)
    (updateObj (if (.. fly glows) then (moveNoCollision fly (uniformChoice (list 0 1 -1)) (uniformChoice (list 0 1 -1))) else fly) "glows"
      (if (.. fly glows) then (uniformChoice (list true true false)) else (uniformChoice (list false false true))))))
  (= kept (fn (fly moved) (if (& (isWithinBounds moved) (< (.. (.. moved origin) y) 8)) then moved else fly)))
  (= start (fn (n) (map (--> k (Fly true (Position (+ 1 (* 2 k)) (+ 2 (% k 3))))) (range 0 n))))

  (: flies (List Fly))
  (= flies (initnext (start 4) (map (--> fly (kept fly (fluttered fly))) (prev flies))))
  (: jar Jar)
  (= jar (initnext (Jar 0 (Position 2 8)) (updateObj (prev jar) "held" (- 4 (length (prev flies))))))

  (on (clicked flies) (= flies (filter (--> fly (! (clicked fly))) (prev flies))))
  (on up (= flies (start 4))))
