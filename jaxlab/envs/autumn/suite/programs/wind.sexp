; family: latches
; capacity: 32
; Every five steps four drops leave a cloud. Left and right set the wind in which they fall, up
; and down still it; drops that are blown off the grid can be blown back.
(program
  (= GRID_SIZE 17)
  (= background "lightcyan")
  (object Cloud (map (--> i (Cell i 0 "gray")) (range 0 7)))
  (object Drop (Cell 0 0 "blue"))

  (= falling (fn (drops_now)
    (filter (--> drop (< (.. (.. drop origin) y) 17)) (map (--> drop (move drop (Position breeze 1))) drops_now))))

  (: clock Number)
  (= clock (initnext 0 (% (+ (prev clock) 1) 5)))
  (: breeze Number)
  (= breeze (initnext 0 (prev breeze)))
  (: cloud Cloud)
  (= cloud (initnext (Cloud (Position 5 1)) (prev cloud)))
  (: drops (List Drop))
  (= drops (initnext (list)
    (if (== clock 0)
      then (addObj (falling (prev drops)) (map (--> k (Drop (Position (+ 5 (* 2 k)) 2))) (range 0 4)))
      else (falling (prev drops)))))

  (on left (= breeze -1))
  (on right (= breeze 1))
  (on (| up down) (= breeze 0)))
