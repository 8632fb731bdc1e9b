; family: movers
; capacity: 16
; Two ants step towards the food nearest to them and eat it. A click drops two pieces of
; food at random places.
(program
  (= GRID_SIZE 16)
  (object Ant (Cell 0 0 "gray"))
  (object Food (Cell 0 0 "red"))

  (= towards (fn (ant meal) (move ant (unitVector ant (closest ant meal)))))

  (: ants (List Ant))
  (= ants (initnext (list (Ant (Position 4 3)) (Ant (Position 11 12)))
    (updateObj (prev ants) (--> ant (towards ant (prev foods))))))
  (: foods (List Food))
  (= foods (initnext (list)
    (filter (--> food (! (intersects food ants))) (prev foods))))

  (on (& clicked (< (length (prev foods)) 12))
    (= foods (addObj (prev foods) (map (--> spot (Food spot)) (randomPositions GRID_SIZE 2))))))
