; family: logic
; A click on a lamp switches it and those beside, above and below it. All 16 lamps can be put
; out; the flag turns green while none is lit.
(program
  (= GRID_SIZE 6)
  (object Lamp (: lit Bool) (Cell 0 0 (if lit then "yellow" else "darkgray")))
  (object Flag (: raised Bool) (Cell 0 0 (if raised then "green" else "red")))

  (: lamps (List Lamp))
  (= lamps (initnext
    (map (--> spot (Lamp (in spot (list (Position 1 1) (Position 2 1) (Position 1 2) (Position 4 4) (Position 3 4) (Position 4 3) (Position 2 4))) spot))
      (rect (Position 1 1) (Position 5 5)))
    (prev lamps)))
  (: flag Flag)
  (= flag (initnext (Flag false (Position 0 0))
    (updateObj (prev flag) "raised" (! (any (--> lamp (.. lamp lit)) lamps)))))

  (on (clicked lamps)
    (= lamps (updateObj (prev lamps) (--> lamp (updateObj lamp "lit" (! (.. lamp lit))))
      (--> lamp (adjacentPoss (.. lamp origin) click 1))))))
