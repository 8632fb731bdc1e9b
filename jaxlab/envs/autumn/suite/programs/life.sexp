; family: contagion
; Conway's game of life on eight by eight cells, which goes on by one generation with each step after
; up, and stands still after down. A click makes a cell alive or dead.
(program
  (= GRID_SIZE 8)
  (object Tile (: alive Bool) (Cell 0 0 (if alive then "limegreen" else "black")))

  (= around (fn (tile tiles_now)
    (length (filter (--> other (& (.. other alive) (& (adjacentTwoObjsDiag tile other) (!= (.. tile origin) (.. other origin))))) tiles_now))))
  (= lives (fn (tile count) (| (== count 3) (& (.. tile alive) (== count 2)))))

  (: running Bool)
  (= running (initnext false (prev running)))
  (: tiles (List Tile))
  (= tiles (initnext
    (map (--> spot (Tile (in spot (list (Position 2 1) (Position 3 2) (Position 1 3) (Position 2 3) (Position 3 3) (Position 5 6) (Position 6 6) (Position 7 6))) spot))
      (rect (Position 0 0) (Position 8 8)))
    (if running
      then (map (--> tile (updateObj tile "alive" (lives tile (around tile (prev tiles))))) (prev tiles))
      else (prev tiles))))

  (on up (= running true))
  (on down (= running false))
  (on (clicked tiles)
    (= tiles (updateObj (prev tiles) (--> tile (updateObj tile "alive" (! (.. tile alive)))) (--> tile (clicked tile))))))
