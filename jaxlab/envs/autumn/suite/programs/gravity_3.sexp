; family: latches
; capacity: 16
; All blobs move with one velocity, of -1, 0 or 1 in each direction, which the arrows change by
; one; a click adds a blob. Blobs leave the grid, and come back if they have not gone far.
(program
  (= GRID_SIZE 21)
  (object Blob (list (Cell 0 0 "mediumpurple") (Cell 1 0 "mediumpurple") (Cell 0 1 "purple")))

  (= is_near (fn (blob)
    (& (& (> (.. (.. blob origin) x) -8) (< (.. (.. blob origin) x) 28))
       (& (> (.. (.. blob origin) y) -8) (< (.. (.. blob origin) y) 28)))))

  (: speed_x Number)
  (= speed_x (initnext 0 (prev speed_x)))
  (: speed_y Number)
  (= speed_y (initnext 0 (prev speed_y)))
  (: blobs (List Blob))
  (= blobs (initnext (list (Blob (Position 10 10)))
    (filter is_near (map (--> blob (move blob (Position speed_x speed_y))) (prev blobs)))))

  (on left (= speed_x (max -1 (- (prev speed_x) 1))))
  (on right (= speed_x (min 1 (+ (prev speed_x) 1))))
  (on up (= speed_y (max -1 (- (prev speed_y) 1))))
  (on down (= speed_y (min 1 (+ (prev speed_y) 1))))
  (on (& (& clicked (isFreePos click)) (< (length (prev blobs)) 12))
    (= blobs (addObj (prev blobs) (Blob click)))))
