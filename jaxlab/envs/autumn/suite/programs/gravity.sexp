; family: latches
; capacity: 16
; Buttons on the four edges say in which direction blobs fall, and a click elsewhere adds a blob.
; Blobs fall off the grid and come back if they have not gone far.
(program
  (= GRID_SIZE 17)
  (object Button (Cell 0 0 "red"))
  (object Blob (list (Cell 0 0 "blue") (Cell 1 0 "blue") (Cell 0 1 "blue") (Cell 1 1 "blue")))

  (= is_near (fn (blob)
    (& (& (> (.. (.. blob origin) x) -8) (< (.. (.. blob origin) x) 24))
       (& (> (.. (.. blob origin) y) -8) (< (.. (.. blob origin) y) 24)))))

  (: west Button)
  (= west (Button (Position 0 8)))
  (: east Button)
  (= east (Button (Position 16 8)))
  (: north Button)
  (= north (Button (Position 8 0)))
  (: south Button)
  (= south (Button (Position 8 16)))
  (: pull Position)
  (= pull (initnext (Position 0 1) (prev pull)))
  (: blobs (List Blob))
  (= blobs (initnext (list (Blob (Position 4 4)) (Blob (Position 11 6)))
    (filter is_near (map (--> blob (move blob pull)) (prev blobs)))))

  (on (clicked west) (= pull (Position -1 0)))
  (on (clicked east) (= pull (Position 1 0)))
  (on (clicked north) (= pull (Position 0 -1)))
  (on (clicked south) (= pull (Position 0 1)))
  (on (& (& clicked (isFreePos click)) (< (length (prev blobs)) 12))
    (= blobs (addObj (prev blobs) (Blob click)))))
