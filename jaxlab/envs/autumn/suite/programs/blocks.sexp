; family: movers
; capacity: 48
; Blocks fall one by one, each from a random column. Left and right move the one that falls and down lets
; it drop; a full lowest row is cleared, and what lies above it comes down.
(program
  (= GRID_SIZE 6)
  (object Block (Cell 0 0 "seagreen"))
  (object Falling (Cell 0 0 "yellow"))

  (= is_taken (fn (spot) (| (> (.. spot y) 5) (in spot (map (--> block (.. block origin)) (prev pile))))))
  (= lies (fn (piece) (is_taken (.. (moveDown piece) origin))))
  (= sideways (fn (piece moved) (if (& (isWithinBounds moved) (! (is_taken (.. moved origin)))) then moved else piece)))
  (= fresh (fn () (Falling (Position (uniformChoice (range 0 6)) 0))))
  (= lowest (fn (blocks_now) (filter (--> block (== (.. (.. block origin) y) 5)) blocks_now)))

  (: pile (List Block))
  (= pile (initnext (list (Block (Position 1 5)) (Block (Position 2 5)) (Block (Position 5 5))) (prev pile)))
  (: falling Falling)
  (= falling (initnext (Falling (Position 3 0)) (moveDown (prev falling))))

  (on (& left (! (lies (prev falling)))) (= falling (sideways (prev falling) (moveLeft (prev falling)))))
  (on (& right (! (lies (prev falling)))) (= falling (sideways (prev falling) (moveRight (prev falling)))))
  (on (& down (! (lies (prev falling)))) (= falling
    (if (lies (moveDown (prev falling))) then (moveDown (prev falling)) else (moveDown (moveDown (prev falling))))))
  (on (lies (prev falling)) (let
    (= pile (if (< (.. (.. (prev falling) origin) y) 2) then (list) else (addObj (prev pile) (Block (.. (prev falling) origin)))))
    (= falling ((fresh)))))
  (on (== (length (lowest (prev pile))) 6)
    (= pile (map moveDown (filter (--> block (< (.. (.. block origin) y) 5)) pile)))))
