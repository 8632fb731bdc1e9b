; family: liquids
; capacity: 48
; Three buttons choose what a click adds: a piece of a vessel, a plug or water, which flows. The
; fourth button removes the plugs, the fifth clears the water.
(program
  (= GRID_SIZE 16)
  (object Button (: shade String) (Cell 0 0 shade))
  (object Wall (Cell 0 0 "purple"))
  (object Plug (Cell 0 0 "orange"))
  (object Water (Cell 0 0 "blue"))

  (: wall_button Button)
  (= wall_button (Button "purple" (Position 2 0)))
  (: plug_button Button)
  (= plug_button (Button "orange" (Position 5 0)))
  (: water_button Button)
  (= water_button (Button "blue" (Position 8 0)))
  (: remove_button Button)
  (= remove_button (Button "white" (Position 11 0)))
  (: clear_button Button)
  (= clear_button (Button "red" (Position 14 0)))

  (: mode String)
  (= mode (initnext "water" (prev mode)))
  (: walls (List Wall))
  (= walls (initnext
    (map (--> spot (Wall spot))
      (concat (list (rect (Position 5 8) (Position 6 12)) (rect (Position 10 8) (Position 11 12))
        (rect (Position 5 12) (Position 7 13)) (rect (Position 9 12) (Position 11 13)))))
    (prev walls)))
  (: plugs (List Plug))
  (= plugs (initnext (list (Plug (Position 7 12)) (Plug (Position 8 12))) (prev plugs)))
  (: water (List Water))
  (= water (initnext (list) (map nextLiquid (prev water))))

  (on (clicked wall_button) (= mode "wall"))
  (on (clicked plug_button) (= mode "plug"))
  (on (clicked water_button) (= mode "water"))
  (on (clicked remove_button) (= plugs (list)))
  (on (clicked clear_button) (= water (list)))
  (on (& (& clicked (isFreePos click)) (& (== mode "wall") (< (length (prev walls)) 32)))
    (= walls (addObj (prev walls) (Wall click))))
  (on (& (& clicked (isFreePos click)) (& (== mode "plug") (< (length (prev plugs)) 16)))
    (= plugs (addObj (prev plugs) (Plug click))))
  (on (& (& clicked (isFreePos click)) (& (== mode "water") (< (length (prev water)) 32)))
    (= water (addObj (prev water) (Water click)))))
