; family: movers
; Arrows move a worker, who pushes crates, one at a time, but not into a wall or another crate. A
; crate on a mark turns green.
(program
  (= GRID_SIZE 8)
  (object Wall (Cell 0 0 "gray"))
  (object Mark (Cell 0 0 "pink"))
  (object Crate (: placed Bool) (Cell 0 0 (if placed then "green" else "brown")))
  (object Worker (Cell 0 0 "blue"))

  (: walls (List Wall))
  (= walls (map (--> spot (Wall spot)) (list (Position 3 0) (Position 3 1) (Position 5 4) (Position 6 4) (Position 1 5))))
  (: marks (List Mark))
  (= marks (initnext (map (--> spot (Mark spot)) (list (Position 6 2) (Position 2 6) (Position 4 6))) (prev marks)))
  (: crates (List Crate))
  (= crates (initnext (map (--> spot (Crate false spot)) (list (Position 4 2) (Position 2 3) (Position 4 5)))
    (marked (prev crates))))
  (: worker Worker)
  (= worker (initnext (Worker (Position 1 1)) (prev worker)))

  (= spots (fn (things) (map (--> thing (.. thing origin)) things)))
  (= marked (fn (things) (map (--> thing (updateObj thing "placed" (in (.. thing origin) (spots marks)))) things)))
  (= is_floor (fn (spot)
    (& (& (& (>= (.. spot x) 0) (< (.. spot x) 8)) (& (>= (.. spot y) 0) (< (.. spot y) 8))) (! (in spot (spots walls))))))
  (= may_go (fn (next_spot way)
    (& (is_floor next_spot)
       (| (! (in next_spot (spots (prev crates))))
          (& (is_floor (movePos next_spot way)) (! (in (movePos next_spot way) (spots (prev crates)))))))))
  (= goes (fn (way) (may_go (movePos (.. (prev worker) origin) way) way)))
  (= pushed (fn (crate way)
    (if (& (goes way) (== (.. crate origin) (movePos (.. (prev worker) origin) way))) then (move crate way) else crate)))
  (= crates_after (fn (way) (marked (map (--> crate (pushed crate way)) (prev crates)))))
  (= worker_after (fn (way) (if (goes way) then (move (prev worker) way) else (prev worker))))

  (on left (let (= crates (crates_after (Position -1 0))) (= worker (worker_after (Position -1 0)))))
  (on right (let (= crates (crates_after (Position 1 0))) (= worker (worker_after (Position 1 0)))))
  (on up (let (= crates (crates_after (Position 0 -1))) (= worker (worker_after (Position 0 -1)))))
  (on down (let (= crates (crates_after (Position 0 1))) (= worker (worker_after (Position 0 1))))))
