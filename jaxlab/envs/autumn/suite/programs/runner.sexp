; family: movers
; capacity: 8
; Rocks come along at random distances. Up makes the runner jump, for five steps; each rock that it clears is a
; point, and where it hits one the points are lost.
(program
  (= GRID_SIZE 12)
  (= background "skyblue")
  (object Ground (map (--> k (Cell k 0 "tan")) (range 0 12)))
  (object Rock (Cell 0 0 "gray"))
  (object Runner (: air Number)
    (list (Cell 0 (if (> air 0) then -3 else 0) "crimson") (Cell 0 (if (> air 0) then -2 else 1) "crimson")))
  (object Score (: points Number) (map (--> k (Cell k 0 (if (< k points) then "gold" else "steelblue"))) (range 0 8)))

  (= at_runner (fn (rocks_now) (any (--> rock (== (.. (.. rock origin) x) 2)) rocks_now)))
  (= rolled (fn (rocks_now) (filter (--> rock (>= (.. (.. rock origin) x) 0)) (map moveLeft rocks_now))))
  (= entrance_free (fn (rocks_now) (! (any (--> rock (> (.. (.. rock origin) x) 6)) rocks_now))))

  (: ground Ground)
  (= ground (initnext (Ground (Position 0 11)) (prev ground)))
  (: rocks (List Rock))
  (= rocks (initnext (list (Rock (Position 9 10)))
    (concat (list (rolled (prev rocks))
      (if (& (entrance_free (prev rocks)) (uniformChoice (list true false false))) then (list (Rock (Position 11 10))) else (list))))))
  (: runner Runner)
  (= runner (initnext (Runner 0 (Position 2 9)) (updateObj (prev runner) "air" (max 0 (- (.. (prev runner) air) 1)))))
  (: score Score)
  (= score (initnext (Score 0 (Position 2 0))
    (if (at_runner rocks)
      then (updateObj (prev score) "points" (if (> (.. runner air) 0) then (min 8 (+ (.. (prev score) points) 1)) else 0))
      else (prev score))))

  (on (& up (== (.. (prev runner) air) 0)) (= runner (updateObj (prev runner) "air" 5))))
