; family: hidden state
; Under some of 25 tiles, drawn at random at the start, there are mines. A click opens a tile, whose colour
; says how many of its neighbours hide one: none, one, two or more; a mine is red.
(program
  (= GRID_SIZE 7)
  (object Tile (: mine Bool) (: is_open Bool) (: near Number)
    (Cell 0 0 (if (! is_open) then "gray"
      else (if mine then "red" else (at (list "white" "skyblue" "blue" "darkblue") (min 3 near))))))

  (= count_near (fn (tile tiles_now) (length (filter (--> other (& (.. other mine) (adjacentTwoObjsDiag tile other))) tiles_now))))

  (: tiles (List Tile))
  (= tiles (initnext
    (map (--> spot (Tile (uniformChoice (list false false false false false true)) false 0 spot)) (rect (Position 1 1) (Position 6 6)))
    (prev tiles)))

  (on (clicked tiles)
    (= tiles (updateObj (prev tiles)
      (--> tile (updateObj (updateObj tile "is_open" true) "near" (count_near tile (prev tiles))))
      (--> tile (clicked tile))))))
