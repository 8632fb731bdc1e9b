; family: hidden state
; A click on one of two throwers makes a stone fly to the bottle between them, which breaks
; half of the time. A click on the bottle mends it.
(program
  (= GRID_SIZE 11)
  (object Thrower (: shade String) (list (Cell 0 0 "tan") (Cell 0 1 shade)))
  (object Bottle (: whole Bool)
    (list (Cell 0 0 (if whole then "lightgreen" else "black"))
          (Cell 0 1 "green")
          (Cell 0 2 "green")))
  (object Stone (: way Number) (Cell 0 0 "gray"))

  (: west Thrower)
  (= west (Thrower "red" (Position 0 5)))
  (: east Thrower)
  (= east (Thrower "blue" (Position 10 5)))
  (: bottle Bottle)
  (= bottle (initnext (Bottle true (Position 5 4)) (prev bottle)))
  (: stones (List Stone))
  (= stones (initnext (list)
    (updateObj (prev stones) (--> stone (move stone (Position (.. stone way) 0))))))

  (on (& (clicked west) (== (length (prev stones)) 0))
    (= stones (list (Stone 1 (Position 1 5)))))
  (on (& (clicked east) (== (length (prev stones)) 0))
    (= stones (list (Stone -1 (Position 9 5)))))
  (on (clicked bottle) (= bottle (updateObj (prev bottle) "whole" true)))
  (on (intersects (prev stones) (prev bottle)) (let
    (= stones (list))
    (= bottle (updateObj (prev bottle) "whole"
      (& (.. (prev bottle) whole) (uniformChoice (list true false))))))))
