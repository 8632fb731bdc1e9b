; family: turn games
; A click on a free cell of a board of nine claims it, and in the next step the rival claims one at random. The lamp
; shows the colour of the first to have three in a row, and a click on it clears the board.
(program
  (= GRID_SIZE 5)
  (= background "darkgray")
  (object Square (: owner Number) (Cell 0 0 (at (list "white" "blue" "red") owner)))
  (object Lamp (: winner Number) (Cell 0 0 (at (list "black" "blue" "red") winner)))

  (= board (fn () (map (--> spot (Square 0 spot)) (rect (Position 1 1) (Position 4 4)))))
  (= lines (list (list 0 1 2) (list 3 4 5) (list 6 7 8) (list 0 3 6) (list 1 4 7) (list 2 5 8) (list 0 4 8) (list 2 4 6)))
  (= owner_at (fn (squares_now k) (.. (at squares_now k) owner)))
  (= has_line (fn (squares_now who)
    (any (--> line (& (== who (owner_at squares_now (at line 0))) (& (== who (owner_at squares_now (at line 1))) (== who (owner_at squares_now (at line 2)))))) lines)))
  (= unclaimed (fn (squares_now) (filter (--> square (== (.. square owner) 0)) squares_now)))
  (= claimed (fn (squares_now spot who)
    (updateObj squares_now (--> square (updateObj square "owner" who)) (--> square (== (.. square origin) spot)))))

  (: squares (List Square))
  (= squares (initnext ((board)) (prev squares)))
  (: rival_moves Bool)
  (= rival_moves (initnext false (prev rival_moves)))
  (: lamp Lamp)
  (= lamp (initnext (Lamp 0 (Position 0 0))
    (if (== (.. (prev lamp) winner) 0)
      then (updateObj (prev lamp) "winner" (if (has_line squares 1) then 1 else (if (has_line squares 2) then 2 else 0)))
      else (prev lamp))))

  (on (& (prev rival_moves) (& (== (.. (prev lamp) winner) 0) (> (length (unclaimed (prev squares))) 0))) (let
    (= squares (claimed (prev squares) (.. (uniformChoice (unclaimed (prev squares))) origin) 2))
    (= rival_moves false)))
  (on (& (& (clicked (unclaimed (prev squares))) (! (prev rival_moves))) (== (.. (prev lamp) winner) 0)) (let
    (= squares (claimed (prev squares) click 1))
    (= rival_moves true)))
  (on (clicked (prev lamp)) (let
    (= squares ((board)))
    (= rival_moves false)
    (= lamp (Lamp 0 (Position 0 0))))))
