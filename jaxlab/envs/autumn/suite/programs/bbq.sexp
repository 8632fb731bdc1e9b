; family: counters
; A click on the grill lights it or puts it out, as long as there is gas; the button on the
; left refuels. Meat cooks over the fire; a click on it feeds the guest, who likes it done, but
; neither raw nor burnt.
(program
  (= GRID_SIZE 7)
  (object Tank (: level Number)
    (Cell 0 0 (if (> level 12) then "green" else (if (> level 0) then "yellow" else "darkgray"))))
  (object Button (Cell 0 0 "blue"))
  (object Grill (: lit Bool)
    (map (--> i (Cell i 0 (if lit then "orangered" else "gray"))) (range 0 3)))
  (object Meat (: heat Number)
    (Cell 0 0 (if (< heat 6) then "pink" else (if (< heat 12) then "brown" else "darkred"))))
  (object Guest (: health Number)
    (list
      (Cell 0 0 "tan")
      (Cell 0 1 (if (< health 1) then "red" else (if (< health 3) then "orange" else "limegreen")))))

  (: button Button)
  (= button (Button (Position 0 6)))
  (: tank Tank)
  (= tank (initnext (Tank 24 (Position 0 5))
    (if (& (.. (prev grill) lit) (> (.. (prev tank) level) 0))
      then (updateObj (prev tank) "level" (- (.. (prev tank) level) 1))
      else (prev tank))))
  (: grill Grill)
  (= grill (initnext (Grill false (Position 2 5))
    (updateObj (prev grill) "lit" (& (.. (prev grill) lit) (> (.. tank level) 0)))))
  (: meat Meat)
  (= meat (initnext (Meat 0 (Position 3 4))
    (if (.. (prev grill) lit)
      then (updateObj (prev meat) "heat" (min 15 (+ (.. (prev meat) heat) 1)))
      else (prev meat))))
  (: guest Guest)
  (= guest (initnext (Guest 1 (Position 5 1)) (prev guest)))

  (= is_done (fn (piece) (& (>= (.. piece heat) 6) (< (.. piece heat) 12))))

  (on (clicked button) (= tank (updateObj (prev tank) "level" 24)))
  (on (& (clicked grill) (> (.. (prev tank) level) 0))
    (= grill (updateObj (prev grill) "lit" (! (.. (prev grill) lit)))))
  (on (clicked meat) (let
    (= guest (updateObj (prev guest) "health"
      (max 0 (min 4 (+ (.. (prev guest) health) (if (is_done (prev meat)) then 1 else -1))))))
    (= meat (Meat 0 (Position 3 4))))))
