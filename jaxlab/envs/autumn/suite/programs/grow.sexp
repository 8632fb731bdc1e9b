; family: liquids
; capacity: 64
; Left and right move a cloud, down lets it rain. A drop that meets a plant makes it grow by a
; leaf, but only while the cloud does not cover the sun; a click on the sun moves it to and fro.
(program
  (= GRID_SIZE 16)
  (= background "skyblue")
  (object Sun (: way Number) (list (Cell 0 0 "gold") (Cell 1 0 "gold") (Cell 0 1 "gold") (Cell 1 1 "gold")))
  (object Cloud (list (Cell 0 0 "gray") (Cell 1 0 "gray") (Cell 2 0 "gray")))
  (object Drop (Cell 0 0 "blue"))
  (object Leaf (Cell 0 0 "green"))

  (= inside (fn (thing moved) (if (isWithinBounds moved) then moved else thing)))
  (= shifted (fn (lamp) (let
    (= turned (if (isWithinBounds (move lamp (Position (* 4 (.. lamp way)) 0)))
      then lamp
      else (updateObj lamp "way" (- 0 (.. lamp way)))))
    (move turned (Position (* 4 (.. turned way)) 0)))))

  (: sun Sun)
  (= sun (initnext (Sun 1 (Position 1 0)) (prev sun)))
  (: cloud Cloud)
  (= cloud (initnext (Cloud (Position 6 1)) (prev cloud)))
  (: leaves (List Leaf))
  (= leaves (initnext (map (--> x (Leaf (Position x 15))) (list 3 7 8 12))
    (if (intersects (prev sun) (prev cloud))
      then (prev leaves)
      else (addObj (prev leaves)
        (map (--> drop (Leaf (.. drop origin)))
          (filter (--> drop (& (> (.. (.. drop origin) y) 4) (intersects (moveDown drop) (prev leaves)))) (prev drops)))))))
  (: drops (List Drop))
  (= drops (initnext (list)
    (filter (--> drop (& (isWithinBounds drop) (! (intersects drop leaves)))) (map moveDown
      (filter (--> drop (! (intersects (moveDown drop) (prev leaves)))) (prev drops))))))

  (on left (= cloud (inside (prev cloud) (moveLeft (prev cloud)))))
  (on right (= cloud (inside (prev cloud) (moveRight (prev cloud)))))
  (on (& down (& (< (length (prev leaves)) 28) (< (length (prev drops)) 12)))
    (= drops (addObj (prev drops) (Drop (.. (move (prev cloud) (Position 1 1)) origin)))))
  (on (clicked sun) (= sun (shifted (prev sun)))))
