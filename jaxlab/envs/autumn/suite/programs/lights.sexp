; family: logic
; A click switches a bar of five cells on or off. While it is off arrows move it; while it is
; on left and right turn it about its end by an eighth of a turn, up and down by a quarter.
(program
  (= GRID_SIZE 16)
  (= step_x (fn (pose) (at (list 1 1 0 -1 -1 -1 0 1) pose)))
  (= step_y (fn (pose) (at (list 0 1 1 1 0 -1 -1 -1) pose)))
  (object Bar (: lit Bool) (: pose Number)
    (map (--> k (Cell (* k (step_x pose)) (* k (step_y pose)) (if lit then "yellow" else "gray")))
      (range 0 5)))

  (= turned (fn (bar eighths) (updateObj bar "pose" (% (+ (.. bar pose) eighths) 8))))
  (= inside (fn (thing moved) (if (isWithinBounds moved) then moved else thing)))

  (: bar Bar)
  (= bar (initnext (Bar false 0 (Position 6 8)) (prev bar)))

  (on clicked (= bar (updateObj (prev bar) "lit" (! (.. (prev bar) lit)))))
  (on (& left (! (.. (prev bar) lit))) (= bar (inside (prev bar) (moveLeft (prev bar)))))
  (on (& right (! (.. (prev bar) lit))) (= bar (inside (prev bar) (moveRight (prev bar)))))
  (on (& up (! (.. (prev bar) lit))) (= bar (inside (prev bar) (moveUp (prev bar)))))
  (on (& down (! (.. (prev bar) lit))) (= bar (inside (prev bar) (moveDown (prev bar)))))
  (on (& left (.. (prev bar) lit)) (= bar (turned (prev bar) 7)))
  (on (& right (.. (prev bar) lit)) (= bar (turned (prev bar) 1)))
  (on (& up (.. (prev bar) lit)) (= bar (turned (prev bar) 6)))
  (on (& down (.. (prev bar) lit)) (= bar (turned (prev bar) 2))))
