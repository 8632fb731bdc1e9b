; family: logic
; A click on one of three dials turns it to its next colour. A click on the handle opens the safe
; if the dials show the right colours, and turns them back to the first if not.
(program
  (= GRID_SIZE 7)
  (object Dial (: shown Number) (Cell 0 0 (at (list "red" "yellow" "green" "blue") shown)))
  (object Handle (Cell 0 0 "silver"))
  (object Bolt (: is_open Bool) (map (--> k (Cell k 0 (if is_open then "limegreen" else "darkred"))) (range 0 5)))

  (: handle Handle)
  (= handle (Handle (Position 3 4)))
  (: dials (List Dial))
  (= dials (initnext (map (--> k (Dial 0 (Position (+ 1 (* 2 k)) 2))) (range 0 3)) (prev dials)))
  (: bolt Bolt)
  (= bolt (initnext (Bolt false (Position 1 6)) (prev bolt)))

  (= fits (fn (dials_now)
    (& (== (.. (at dials_now 0) shown) 2) (& (== (.. (at dials_now 1) shown) 1) (== (.. (at dials_now 2) shown) 3)))))

  (on (clicked dials)
    (= dials (updateObj (prev dials) (--> dial (updateObj dial "shown" (% (+ (.. dial shown) 1) 4))) (--> dial (clicked dial)))))
  (on (clicked handle) (let
    (= bolt (updateObj (prev bolt) "is_open" (fits (prev dials))))
    (= dials (if (fits (prev dials)) then (prev dials) else (map (--> dial (updateObj dial "shown" 0)) (prev dials)))))))
