; family: liquids
; capacity: 32
; Left and right move a cloud, down lets a drop fall from it: water by day, which flows, and ice
; by night, which does not. A click turns day into night and thaws or freezes all that has fallen.
(program
  (= GRID_SIZE 16)
  (object Lamp (: day Bool)
    (map (--> spot (Cell (.. spot x) (.. spot y) (if day then "gold" else "lightgray")))
      (rect (Position 0 0) (Position 2 2))))
  (object Cloud (list (Cell 0 0 "gray") (Cell 1 0 "gray") (Cell 2 0 "gray")))
  (object Drop (: liquid Bool) (Cell 0 0 (if liquid then "blue" else "lightblue")))

  (= inside (fn (thing moved) (if (isWithinBounds moved) then moved else thing)))

  (: lamp Lamp)
  (= lamp (initnext (Lamp true (Position 0 0)) (prev lamp)))
  (: cloud Cloud)
  (= cloud (initnext (Cloud (Position 7 3)) (prev cloud)))
  (: drops (List Drop))
  (= drops (initnext (list)
    (updateObj (prev drops) (--> drop (if (.. drop liquid) then (nextLiquid drop) else (nextSolid drop))))))

  (on left (= cloud (inside (prev cloud) (moveLeft (prev cloud)))))
  (on right (= cloud (inside (prev cloud) (moveRight (prev cloud)))))
  (on (& down (& (< (length (prev drops)) 28) (isFreePos (.. (move (prev cloud) (Position 1 1)) origin))))
    (= drops (addObj (prev drops) (Drop (.. lamp day) (.. (move (prev cloud) (Position 1 1)) origin)))))
  (on clicked (let
    (= lamp (updateObj (prev lamp) "day" (! (.. (prev lamp) day))))
    (= drops (updateObj drops (--> drop (updateObj drop "liquid" (! (.. drop liquid)))))))))
