; family: turn games
; A click on one of the last three matches in a row takes it and all to its right; then the rival takes one to
; three, as the best strategy says. Who takes the last match wins, and a click on the lamp starts anew.
(program
  (= GRID_SIZE 11)
  (object Row (: count Number) (map (--> k (Cell k 0 "tan")) (range 0 count)))
  (object Lamp (: state String) (Cell 0 0 state))

  (: count Number)
  (= count (initnext 10 (prev count)))
  (: rival_moves Bool)
  (= rival_moves (initnext false (prev rival_moves)))
  (: row Row)
  (= row (initnext (Row 10 (Position 0 5)) (Row count (Position 0 5))))
  (: lamp Lamp)
  (= lamp (initnext (Lamp "white" (Position 5 1)) (prev lamp)))

  (= taken_by_rival (fn (left_now) (if (== (% left_now 4) 0) then 1 else (% left_now 4))))

  (on (& (prev rival_moves) (> (prev count) 0)) (let
    (= count (- (prev count) (taken_by_rival (prev count))))
    (= rival_moves false)
    (= lamp (Lamp (if (== count 0) then "red" else "white") (Position 5 1)))))
  (on (& (& (clicked (prev row)) (! (prev rival_moves))) (>= (.. click x) (- (prev count) 3))) (let
    (= count (.. click x))
    (= rival_moves true)
    (= lamp (Lamp (if (== count 0) then "green" else "gray") (Position 5 1)))))
  (on (clicked (prev lamp)) (let
    (= count 10)
    (= rival_moves false)
    (= lamp (Lamp "white" (Position 5 1))))))
