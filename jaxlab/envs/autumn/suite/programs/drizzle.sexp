; family: counters
; capacity: 12
; Drops fall in random columns. Left and right move an umbrella, on which they end; those that get past
; it wet the ground, whose colour says roughly how much, and a click dries it.
(program
  (= GRID_SIZE 9)
  (object Umbrella (list (Cell 0 1 "magenta") (Cell 1 0 "magenta") (Cell 2 1 "magenta") (Cell 1 1 "magenta")))
  (object Drop (Cell 0 0 "skyblue"))
  (object Ground (: wet Number)
    (map (--> k (Cell k 0 (if (< wet 4) then "tan" else (if (< wet 8) then "brown" else "darkblue")))) (range 0 9)))

  (= on_ground (fn (drops_now) (length (filter (--> drop (== (.. (.. drop origin) y) 7)) drops_now))))

  (: ground Ground)
  (= ground (initnext (Ground 0 (Position 0 8))
    (updateObj (prev ground) "wet" (min 12 (+ (.. (prev ground) wet) (on_ground (prev drops)))))))
  (: time Number)
  (= time (initnext 0 (% (+ (prev time) 1) 2)))
  (: umbrella Umbrella)
  (= umbrella (initnext (Umbrella (Position 3 5)) (prev umbrella)))
  (: drops (List Drop))
  (= drops (initnext (list)
    (concat (list
      (filter (--> drop (& (< (.. (.. drop origin) y) 8) (! (intersects drop umbrella)))) (map moveDown (prev drops)))
      (if (== time 0) then (list (Drop (Position (uniformChoice (range 0 9)) 0))) else (list))))))

  (on left (= umbrella (if (isWithinBounds (moveLeft (prev umbrella))) then (moveLeft (prev umbrella)) else (prev umbrella))))
  (on right (= umbrella (if (isWithinBounds (moveRight (prev umbrella))) then (moveRight (prev umbrella)) else (prev umbrella))))
  (on clicked (= ground (updateObj (prev ground) "wet" 0))))
