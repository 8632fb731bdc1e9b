; family: counters
; A click on the lever costs a coin and turns three wheels at random: three alike win five coins, two alike one. A
; click on the purse, when it is empty, puts three coins in.
(program
  (= GRID_SIZE 8)
  (object Wheel (: shown Number) (Cell 0 0 (at (list "red" "green" "blue") shown)))
  (object Lever (list (Cell 0 0 "silver") (Cell 0 1 "gray")))
  (object Purse (: coins Number) (map (--> k (Cell k 0 (if (< k coins) then "gold" else "brown"))) (range 0 8)))

  (: lever Lever)
  (= lever (Lever (Position 7 2)))
  (: wheels (List Wheel))
  (= wheels (initnext (map (--> k (Wheel k (Position (+ 1 (* 2 k)) 3))) (range 0 3)) (prev wheels)))
  (: purse Purse)
  (= purse (initnext (Purse 3 (Position 0 7)) (prev purse)))

  (= alike (fn (i j) (== (.. (at wheels i) shown) (.. (at wheels j) shown))))
  (= prize (fn ()
    (if (& (alike 0 1) (alike 1 2)) then 5 else (if (| (alike 0 1) (| (alike 1 2) (alike 0 2))) then 1 else 0))))

  (on (& (clicked lever) (> (.. (prev purse) coins) 0)) (let
    (= wheels (updateObj (prev wheels) (--> wheel (updateObj wheel "shown" (uniformChoice (list 0 1 2))))))
    (= purse (updateObj (prev purse) "coins" (min 8 (+ (- (.. (prev purse) coins) 1) ((prize))))))))
  (on (& (clicked (prev purse)) (== (.. (prev purse) coins) 0)) (= purse (updateObj (prev purse) "coins" 3))))
