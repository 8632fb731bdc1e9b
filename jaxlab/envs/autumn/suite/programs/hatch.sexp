; family: hidden state
; A click on a piece of eggshell breaks it off. Loose pieces fall to the ground, and vanish
; where they come upon feathers; behind the shell there is a chick.
(program
  (= GRID_SIZE 16)
  (= background "lightblue")
  (object Feather (Cell 0 0 "white"))
  (object Chick (list (Cell 1 0 "yellow") (Cell 0 1 "yellow") (Cell 1 1 "yellow") (Cell 2 1 "orange") (Cell 1 2 "yellow")))
  (object Shell (: loose Bool) (Cell 0 0 (if loose then "tan" else "sandybrown")))

  (: feathers (List Feather))
  (= feathers (map (--> x (Feather (Position x 12))) (list 5 6 7)))
  (: chick Chick)
  (= chick (initnext (Chick (Position 6 5)) (prev chick)))
  (= fallen (fn (piece)
    (if (& (.. piece loose) (< (.. (.. piece origin) y) 15)) then (moveDown piece) else piece)))

  (: shells (List Shell))
  (= shells (initnext
    (map (--> spot (Shell false spot))
      (filter (--> spot (! (in spot (list (Position 5 4) (Position 9 4) (Position 5 8) (Position 9 8)))))
        (rect (Position 5 4) (Position 10 9))))
    (filter (--> piece (! (intersects piece feathers))) (map fallen (prev shells)))))

  (on (clicked shells)
    (= shells (updateObj (prev shells) (--> piece (updateObj piece "loose" true)) (--> piece (clicked piece))))))
