; family: counters
; Left and right move a visitor along a path that a door blocks. Every third click on the bell opens the
; door for ten steps; neither the presses nor the steps left are shown.
(program
  (= GRID_SIZE 8)
  (object Bell (: struck Bool) (Cell 0 0 (if struck then "yellow" else "goldenrod")))
  (object Wall (Cell 0 0 "gray"))
  (object Door (Cell 0 0 "brown"))
  (object Visitor (Cell 0 0 "limegreen"))

  (: walls (List Wall))
  (= walls (map (--> y (Wall (Position 4 y))) (list 0 1 2 3 4 6 7)))
  (: presses Number)
  (= presses (initnext 0 (prev presses)))
  (: time_left Number)
  (= time_left (initnext 0 (max 0 (- (prev time_left) 1))))
  (: bell Bell)
  (= bell (initnext (Bell false (Position 2 2)) (updateObj (prev bell) "struck" false)))
  (: doors (List Door))
  (= doors (initnext (list (Door (Position 4 5)))
    (if (> time_left 0) then (list) else (list (Door (Position 4 5))))))
  (: visitor Visitor)
  (= visitor (initnext (Visitor (Position 1 5)) (prev visitor)))

  (on left (= visitor (moveLeftNoCollision (prev visitor))))
  (on right (= visitor (moveRightNoCollision (prev visitor))))
  (on (clicked bell) (let
    (= bell (updateObj (prev bell) "struck" true))
    (= presses (% (+ (prev presses) 1) 3))))
  (on (& (clicked bell) (== presses 0)) (= time_left 10)))
