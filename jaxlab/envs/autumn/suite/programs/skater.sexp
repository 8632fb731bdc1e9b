; family: movers
; An arrow pushes a skater off, who then slides until a rock or the edge of the ice stops it; while
; it slides it cannot turn. It takes the flags on its way.
(program
  (= GRID_SIZE 10)
  (= background "lightcyan")
  (object Rock (Cell 0 0 "gray"))
  (object Flag (Cell 0 0 "crimson"))
  (object Skater (Cell 0 0 "purple"))

  (: rocks (List Rock))
  (= rocks (map (--> spot (Rock spot))
    (list (Position 4 0) (Position 8 2) (Position 1 4) (Position 6 5) (Position 3 7) (Position 9 8) (Position 5 9))))

  (= is_clear (fn (spot)
    (& (& (>= (.. spot x) 0) (< (.. spot x) 10))
       (& (& (>= (.. spot y) 0) (< (.. spot y) 10)) (! (in spot (map (--> rock (.. rock origin)) rocks)))))))
  (= slid (fn (thing way) (if (is_clear (movePos (.. thing origin) way)) then (move thing way) else thing)))
  (= at_rest (fn (thing way) (! (is_clear (movePos (.. thing origin) way)))))

  (: heading Position)
  (= heading (initnext (Position 0 -1) (prev heading)))
  (: flags (List Flag))
  (= flags (initnext (map (--> spot (Flag spot)) (list (Position 7 2) (Position 2 5) (Position 9 5) (Position 0 9)))
    (filter (--> flag (! (intersects flag (prev skater)))) (prev flags))))
  (: skater Skater)
  (= skater (initnext (Skater (Position 0 0)) (slid (prev skater) heading)))

  (on (& left (at_rest (prev skater) (prev heading))) (= heading (Position -1 0)))
  (on (& right (at_rest (prev skater) (prev heading))) (= heading (Position 1 0)))
  (on (& up (at_rest (prev skater) (prev heading))) (= heading (Position 0 -1)))
  (on (& down (at_rest (prev skater) (prev heading))) (= heading (Position 0 1))))
