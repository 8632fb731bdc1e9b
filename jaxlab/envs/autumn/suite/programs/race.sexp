; family: turn games
; A click on the die moves the player's piece by one to three squares, and in the next step the rival's moves likewise. A
; piece on a green square goes on to the blue one, one on red goes back; who is first at the end wins, and up starts anew.
(program
  (= GRID_SIZE 12)
  (object Square (: shade String) (Cell 0 0 shade))
  (object Die (: shown Number) (Cell 0 0 (at (list "gray" "white" "yellow" "orange") shown)))
  (object Piece (: shade String) (Cell 0 0 shade))
  (object Flag (: shade String) (list (Cell 0 0 shade) (Cell 1 0 shade)))

  (= moved_on (fn (x)
    (if (== x 3) then 6 else (if (== x 8) then 5 else (min 11 x)))))
  (= square_shade (fn (x) (if (== x 3) then "green" else (if (== x 8) then "red" else (if (== x 6) then "blue" else "tan")))))
  (= place_of (fn (piece) (.. (.. piece origin) x)))
  (= gone (fn (piece points) (updateObj piece "origin" (Position (moved_on (+ (place_of piece) points)) (.. (.. piece origin) y)))))
  (= is_over (fn () (| (== (place_of (prev mine)) 11) (== (place_of (prev rival)) 11))))

  (: squares (List Square))
  (= squares (initnext (map (--> x (Square (square_shade x) (Position x 6))) (range 0 12)) (prev squares)))
  (: mine Piece)
  (= mine (initnext (Piece "cyan" (Position 0 5)) (prev mine)))
  (: rival Piece)
  (= rival (initnext (Piece "magenta" (Position 0 7)) (prev rival)))
  (: die Die)
  (= die (initnext (Die 0 (Position 5 2)) (prev die)))
  (: rival_moves Bool)
  (= rival_moves (initnext false (prev rival_moves)))
  (: flag Flag)
  (= flag (initnext (Flag "darkgray" (Position 10 2))
    (updateObj (prev flag) "shade"
      (if (== (place_of mine) 11) then "cyan" else (if (== (place_of rival) 11) then "magenta" else "darkgray")))))

  (on (& (prev rival_moves) (! ((is_over)))) (let
    (= die (Die (uniformChoice (list 1 2 3)) (Position 5 2)))
    (= rival (gone (prev rival) (.. die shown)))
    (= rival_moves false)))
  (on (& (& (clicked (prev die)) (! (prev rival_moves))) (! ((is_over)))) (let
    (= die (Die (uniformChoice (list 1 2 3)) (Position 5 2)))
    (= mine (gone (prev mine) (.. die shown)))
    (= rival_moves true)))
  (on up (let
    (= mine (Piece "cyan" (Position 0 5)))
    (= rival (Piece "magenta" (Position 0 7)))
    (= rival_moves false))))
