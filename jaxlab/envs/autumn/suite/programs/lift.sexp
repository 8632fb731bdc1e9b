; family: latches
; A click on the button of a floor calls the lift, which goes to the floors that called, the highest
; first, and waits four steps at each. Left and right move a passenger, who rides along inside.
(program
  (= GRID_SIZE 10)
  (object Button (: pressed Bool) (Cell 0 0 (if pressed then "orange" else "gray")))
  (object Floor (map (--> k (Cell k 0 "brown")) (range 0 5)))
  (object Lift (list (Cell 0 0 "silver") (Cell 0 1 "silver")))
  (object Passenger (Cell 0 0 "yellow"))

  (= floor_ys (list 2 5 8))
  (: floors (List Floor))
  (= floors (map (--> y (Floor (Position 5 (+ y 1)))) floor_ys))
  (= height (fn (thing) (.. (.. thing origin) y)))
  (= called (fn (buttons_now) (filter (--> button (.. button pressed)) buttons_now)))
  (= goal_of (fn (car buttons_now)
    (if (== (length (called buttons_now)) 0) then (height car) else (height (head (called buttons_now))))))

  (: wait Number)
  (= wait (initnext 0 (if (& (> (length (called (prev buttons))) 0) (== (goal_of (prev lift) (prev buttons)) (height (prev lift))))
    then 4
    else (max 0 (- (prev wait) 1)))))
  (: buttons (List Button))
  (= buttons (initnext (map (--> y (Button false (Position 9 y))) floor_ys)
    (updateObj (prev buttons) (--> button (updateObj button "pressed" false))
      (--> button (& (== (prev wait) 0) (== (height button) (height (prev lift))))))))
  (: lift Lift)
  (= lift (initnext (Lift (Position 4 8))
    (if (> (prev wait) 0)
      then (prev lift)
      else (move (prev lift) (Position 0 (sign (- (goal_of (prev lift) (prev buttons)) (height (prev lift)))))))))
  (: passenger Passenger)
  (= passenger (initnext (Passenger (Position 7 8))
    (if (== (.. (.. (prev passenger) origin) x) 4) then (Passenger (.. lift origin)) else (prev passenger))))

  (= may_enter (fn (who)
    (| (> (.. (.. who origin) x) 5) (== (height who) (height (prev lift))))))

  (on (clicked buttons)
    (= buttons (updateObj (prev buttons) (--> button (updateObj button "pressed" true)) (--> button (clicked button)))))
  (on (& left (& (> (.. (.. (prev passenger) origin) x) 4) (may_enter (prev passenger))))
    (= passenger (moveLeft (prev passenger))))
  (on (& right (& (< (.. (.. (prev passenger) origin) x) 8) (in (height (prev passenger)) floor_ys)))
    (= passenger (moveRight (prev passenger)))))
