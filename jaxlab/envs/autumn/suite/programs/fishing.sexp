; family: movers
; Fish swim to and fro and turn at the walls, and now and then at random. Left, right, up and down move the hook; a
; fish that meets it hangs on until the hook is at the surface, where it goes into the basket.
(program
  (= GRID_SIZE 10)
  (= background "lightblue")
  (object Surface (map (--> k (Cell k 0 "skyblue")) (range 0 10)))
  (object Fish (: way Number) (: hooked Bool) (Cell 0 0 (if hooked then "red" else "orange")))
  (object Hook (Cell 0 0 "gray"))
  (object Basket (: held Number) (map (--> k (Cell k 0 (if (< k held) then "gold" else "brown"))) (range 0 4)))

  (: surface Surface)
  (= surface (initnext (Surface (Position 0 1)) (prev surface)))
  (: hook Hook)
  (= hook (initnext (Hook (Position 2 3)) (prev hook)))
  (: fishes (List Fish))
  (= fishes (initnext (list (Fish 1 false (Position 1 5)) (Fish -1 false (Position 6 6)) (Fish 1 false (Position 4 8)) (Fish -1 false (Position 8 4)))
    (map swum (filter (--> fish (! (landed fish))) (prev fishes)))))
  (: basket Basket)
  (= basket (initnext (Basket 0 (Position 0 0))
    (updateObj (prev basket) "held" (+ (.. (prev basket) held) (length (filter landed (prev fishes)))))))

  (= landed (fn (fish) (& (.. fish hooked) (== (.. (.. fish origin) y) 1))))
  (= faced (fn (fish)
    (if (isWithinBounds (move fish (Position (.. fish way) 0)))
      then (if (uniformChoice (list false false false false false false false true)) then (updateObj fish "way" (- 0 (.. fish way))) else fish)
      else (updateObj fish "way" (- 0 (.. fish way))))))
  (= glided (fn (fish)
    (if (isWithinBounds (move fish (Position (.. fish way) 0))) then (move fish (Position (.. fish way) 0)) else fish)))
  (= swum (fn (fish)
    (if (| (.. fish hooked) (intersects fish (prev hook)))
      then (updateObj (updateObj fish "hooked" true) "origin" (.. hook origin))
      else (glided (faced fish)))))
  (= in_water (fn (moved) (if (& (isWithinBounds moved) (> (.. (.. moved origin) y) 0)) then moved else (prev hook))))

  (on left (= hook (in_water (moveLeft (prev hook)))))
  (on right (= hook (in_water (moveRight (prev hook)))))
  (on up (= hook (in_water (moveUp (prev hook)))))
  (on down (= hook (in_water (moveDown (prev hook))))))
