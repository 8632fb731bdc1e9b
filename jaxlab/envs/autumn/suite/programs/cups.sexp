; family: hidden state
; A pea lies under one of three cups. A click lifts a cup for three steps; if the pea is under it a lamp more is lit, if
; not they all go out. Up puts the pea under a cup drawn at random.
(program
  (= GRID_SIZE 9)
  (object Pea (Cell 0 0 "limegreen"))
  (object Cup (: lifted Number) (list (Cell 0 (if (> lifted 0) then -2 else 0) "brown") (Cell 0 (if (> lifted 0) then -1 else 1) "brown")))
  (object Lamps (: lit Number) (map (--> k (Cell k 0 (if (< k lit) then "yellow" else "darkgray"))) (range 0 5)))

  (: pea Pea)
  (= pea (initnext (Pea (Position (uniformChoice (list 1 4 7)) 6)) (prev pea)))
  (: cups (List Cup))
  (= cups (initnext (map (--> x (Cup 0 (Position x 5))) (list 1 4 7))
    (updateObj (prev cups) (--> cup (updateObj cup "lifted" (max 0 (- (.. cup lifted) 1)))))))
  (: lamps Lamps)
  (= lamps (initnext (Lamps 0 (Position 2 0)) (prev lamps)))

  (= all_down (fn (cups_now) (! (any (--> cup (> (.. cup lifted) 0)) cups_now))))
  (= is_right (fn (spot) (== (.. spot x) (.. (.. (prev pea) origin) x))))

  (on (& (clicked (prev cups)) (all_down (prev cups))) (let
    (= lamps (updateObj (prev lamps) "lit" (if (is_right click) then (min 5 (+ (.. (prev lamps) lit) 1)) else 0)))
    (= cups (updateObj (prev cups) (--> cup (updateObj cup "lifted" 3)) (--> cup (clicked cup))))))
  (on (& up (all_down (prev cups))) (= pea (Pea (Position (uniformChoice (list 1 4 7)) 6)))))
