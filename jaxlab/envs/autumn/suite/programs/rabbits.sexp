; family: movers
; capacity: 12
; Rabbits hop about at random, but only onto free cells. Arrows move a fox, who eats those it
; meets; a click sets another rabbit out.
(program
  (= GRID_SIZE 9)
  (= background "lightgreen")
  (object Rabbit (Cell 0 0 "white"))
  (object Fox (Cell 0 0 "darkorange"))
  (object Bush (Cell 0 0 "darkgreen"))

  (: bushes (List Bush))
  (= bushes (map (--> spot (Bush spot)) (list (Position 2 2) (Position 6 2) (Position 4 5) (Position 2 7) (Position 7 6))))
  (: fox Fox)
  (= fox (initnext (Fox (Position 0 8)) (prev fox)))
  (: rabbits (List Rabbit))
  (= rabbits (initnext (list (Rabbit (Position 4 2)) (Rabbit (Position 7 4)) (Rabbit (Position 2 5)))
    (map hopped (filter (--> rabbit (! (intersects rabbit fox))) (prev rabbits)))))

  (= hopped (fn (rabbit) (let
    (= spot (uniformChoice (adjPositions (.. rabbit origin))))
    (if (isFreePos spot) then (updateObj rabbit "origin" spot) else rabbit))))
  (= walked (fn (moved) (if (& (isWithinBounds moved) (! (intersects moved bushes))) then moved else (prev fox))))

  (on left (= fox (walked (moveLeft (prev fox)))))
  (on right (= fox (walked (moveRight (prev fox)))))
  (on up (= fox (walked (moveUp (prev fox)))))
  (on down (= fox (walked (moveDown (prev fox)))))
  (on (& (& clicked (isFreePos click)) (< (length (prev rabbits)) 8))
    (= rabbits (addObj (prev rabbits) (Rabbit click)))))
