; family: liquids
; capacity: 32
; Two buttons choose what a click drops, sand or water. Sand piles up and water flows; sand that
; touches water becomes liquid too.
(program
  (= GRID_SIZE 10)
  (object Button (: shade String) (list (Cell 0 0 shade) (Cell 1 0 shade)))
  (object Sand (: liquid Bool) (Cell 0 0 (if liquid then "sandybrown" else "tan")))
  (object Water (Cell 0 0 "skyblue"))

  (: sand_button Button)
  (= sand_button (Button "red" (Position 1 0)))
  (: water_button Button)
  (= water_button (Button "green" (Position 7 0)))

  (= wetted (fn (grain)
    (updateObj grain "liquid" (| (.. grain liquid) (any (--> drop (adjacentTwoObjs grain drop 1)) (prev water))))))

  (: mode String)
  (= mode (initnext "sand" (prev mode)))
  (: sand (List Sand))
  (= sand (initnext (list)
    (map (--> grain (wetted (if (.. grain liquid) then (nextLiquid grain) else (nextSolid grain)))) (prev sand))))
  (: water (List Water))
  (= water (initnext (list) (map nextLiquid (prev water))))

  (on (clicked sand_button) (= mode "sand"))
  (on (clicked water_button) (= mode "water"))
  (on (& (& clicked (isFreePos click)) (& (== mode "sand") (< (length (prev sand)) 28)))
    (= sand (addObj (prev sand) (Sand false click))))
  (on (& (& clicked (isFreePos click)) (& (== mode "water") (< (length (prev water)) 28)))
    (= water (addObj (prev water) (Water click)))))
