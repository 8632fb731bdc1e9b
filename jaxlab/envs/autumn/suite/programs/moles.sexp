; family: counters
; A mole looks out of one of five holes, and out of another, drawn at random, every fifth step. A click on it
; scores a point and sends it off at once, a click on an empty hole costs one.
(program
  (= GRID_SIZE 8)
  (= background "green")
  (object Hole (Cell 0 0 "black"))
  (object Mole (Cell 0 0 "tan"))
  (object Score (: points Number) (map (--> k (Cell k 0 (if (< k points) then "gold" else "darkgreen"))) (range 0 6)))

  (= spots (list (Position 1 3) (Position 6 3) (Position 3 5) (Position 1 7) (Position 6 7)))
  (: time Number)
  (= time (initnext 0 (% (+ (prev time) 1) 5)))
  (: hollows (List Hole))
  (= hollows (initnext (map (--> spot (Hole spot)) spots) (prev hollows)))
  (: mole Mole)
  (= mole (initnext (Mole (Position 3 5)) (if (== time 0) then (Mole (uniformChoice spots)) else (prev mole))))
  (: score Score)
  (= score (initnext (Score 0 (Position 1 0)) (prev score)))

  (= scored (fn (more) (updateObj (prev score) "points" (max 0 (min 6 (+ (.. (prev score) points) more))))))

  (on (clicked (prev mole)) (let
    (= score (scored 1))
    (= time 0)
    (= mole (Mole (uniformChoice spots)))))
  (on (& (clicked hollows) (! (clicked (prev mole)))) (= score (scored -1))))
