; family: selection
; A click chooses one of three robots, which is not shown, and an arrow sends it off, until something is in its way or another
; is chosen. The lamp is lit while the red robot stands on the mark.
(program
  (= GRID_SIZE 9)
  (object Wall (Cell 0 0 "gray"))
  (object Mark (Cell 0 0 "lightpink"))
  (object Robot (: shade String) (: chosen Bool) (Cell 0 0 shade))
  (object Lamp (: lit Bool) (Cell 0 0 (if lit then "gold" else "darkgray")))

  (: walls (List Wall))
  (= walls (map (--> spot (Wall spot))
    (list (Position 0 8) (Position 4 1) (Position 1 3) (Position 7 3) (Position 3 5) (Position 5 7))))
  (: heading Position)
  (= heading (initnext (Position 0 0) (prev heading)))
  (: mark Mark)
  (= mark (initnext (Mark (Position 8 4)) (prev mark)))
  (: robots (List Robot))
  (= robots (initnext
    (list (Robot "red" true (Position 2 2)) (Robot "green" false (Position 6 5)) (Robot "blue" false (Position 2 7)))
    (map sent (prev robots))))
  (: lamp Lamp)
  (= lamp (initnext (Lamp false (Position 0 0))
    (updateObj (prev lamp) "lit" (any (--> robot (& (== (.. robot shade) "red") (intersects robot mark))) robots))))

  (= is_blocked (fn (spot)
    (| (in spot (map (--> wall (.. wall origin)) walls)) (in spot (map (--> robot (.. robot origin)) (prev robots))))))
  (= sent (fn (robot)
    (if (& (.. robot chosen) (& (isWithinBounds (move robot heading)) (! (is_blocked (movePos (.. robot origin) heading)))))
      then (move robot heading)
      else robot)))

  (on left (= heading (Position -1 0)))
  (on right (= heading (Position 1 0)))
  (on up (= heading (Position 0 -1)))
  (on down (= heading (Position 0 1)))
  (on (clicked (prev robots)) (let
    (= heading (Position 0 0))
    (= robots (map (--> robot (updateObj robot "chosen" (clicked robot))) (prev robots))))))
