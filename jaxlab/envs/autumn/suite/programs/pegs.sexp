; family: selection
; A click on a peg takes it up. A click on a hole two cells away then jumps with it over a peg
; between, which is taken off the board.
(program
  (= GRID_SIZE 7)
  (= background "tan")
  (object Hole (Cell 0 0 "brown"))
  (object Peg (: held Bool) (Cell 0 0 (if held then "orange" else "blue")))

  (: holes_there (List Hole))
  (= holes_there (initnext (map (--> spot (Hole spot)) (rect (Position 1 1) (Position 6 6))) (prev holes_there)))
  (: pegs (List Peg))
  (= pegs (initnext
    (map (--> spot (Peg false spot))
      (filter (--> spot (!= spot (Position 3 3))) (rect (Position 1 1) (Position 6 6))))
    (prev pegs)))

  (= held_one (fn (pegs_now) (filter (--> peg (.. peg held)) pegs_now)))
  (= middle (fn (p q) (Position (/ (+ (.. p x) (.. q x)) 2) (/ (+ (.. p y) (.. q y)) 2))))
  (= is_jump (fn (p q)
    (& (== (sqdist p q) 4) (in (middle p q) (map (--> peg (.. peg origin)) (prev pegs))))))
  (= jumped (fn (source target)
    (map (--> peg (if (.. peg held) then (Peg false target) else peg))
      (filter (--> peg (!= (.. peg origin) (middle source target))) (prev pegs)))))

  (on (clicked (prev pegs))
    (= pegs (map (--> peg (updateObj peg "held" (clicked peg))) (prev pegs))))
  (on (& (& (clicked holes_there) (! (clicked (prev pegs)))) (> (length (held_one (prev pegs))) 0))
    (if (is_jump (.. (head (held_one (prev pegs))) origin) click)
      then (= pegs (jumped (.. (head (held_one (prev pegs))) origin) click))
      else pegs)))
