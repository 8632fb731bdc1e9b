; family: contagion
; A click drops a grain on a tile. A tile with four grains topples and gives one to each
; neighbour, which may topple in turn; grains that fall over the edge are lost.
(program
  (= GRID_SIZE 7)
  (object Tile (: grains Number)
    (Cell 0 0 (if (> grains 3) then "red" else (at (list "darkgray" "tan" "gold" "orange") (max 0 grains)))))

  (= given (fn (tile tiles_now)
    (length (filter (--> other (& (> (.. other grains) 3) (== 1 (sqdist (.. tile origin) (.. other origin))))) tiles_now))))
  (= toppled (fn (tiles_now)
    (map (--> tile (updateObj tile "grains"
        (+ (- (.. tile grains) (if (> (.. tile grains) 3) then 4 else 0)) (given tile tiles_now))))
      tiles_now)))

  (: tiles (List Tile))
  (= tiles (initnext
    (map (--> spot (Tile (if (== (.. spot x) (.. spot y)) then 3 else (% (+ (.. spot x) (.. spot y)) 3)) spot)) (rect (Position 1 1) (Position 6 6)))
    (toppled (prev tiles))))

  (on (clicked tiles)
    (= tiles (updateObj (prev tiles) (--> tile (updateObj tile "grains" (min 7 (+ (.. tile grains) 1)))) (--> tile (clicked tile))))))
