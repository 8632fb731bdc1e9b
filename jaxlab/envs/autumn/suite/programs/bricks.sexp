; family: movers
; A ball flies to and fro and breaks the bricks that it meets. Left and right move the paddle, from which the
; ball bounces in a random direction; when it gets past the paddle it starts anew.
(program
  (= GRID_SIZE 12)
  (object Brick (list (Cell 0 0 "coral") (Cell 1 0 "coral")))
  (object Paddle (map (--> k (Cell k 0 "silver")) (range 0 4)))
  (object Ball (: way_x Number) (: way_y Number) (Cell 0 0 "yellow"))

  (= ahead (fn (flier) (movePos (.. flier origin) (Position (.. flier way_x) (.. flier way_y)))))
  (= covers (fn (brick spot)
    (& (== (.. (.. brick origin) y) (.. spot y)) (| (== (.. (.. brick origin) x) (.. spot x)) (== (+ 1 (.. (.. brick origin) x)) (.. spot x))))))
  (= off_walls (fn (flier)
    (Ball (if (| (< (.. (ahead flier) x) 0) (> (.. (ahead flier) x) 11)) then (- 0 (.. flier way_x)) else (.. flier way_x))
      (if (< (.. (ahead flier) y) 0) then 1 else (.. flier way_y))
      (.. flier origin))))
  (= is_caught (fn (flier)
    (& (== (.. (ahead flier) y) 11)
       (& (>= (.. (ahead flier) x) (.. (.. (prev paddle) origin) x)) (< (.. (ahead flier) x) (+ 4 (.. (.. (prev paddle) origin) x)))))))
  (= flown (fn (flier)
    (if (> (.. (ahead flier) y) 11)
      then (Ball 1 1 (Position 3 5))
      else (updateObj flier "origin" (ahead flier)))))

  (: bricks (List Brick))
  (= bricks (initnext (map (--> spot (Brick spot)) (map (--> k (Position (* 2 (% k 6)) (+ 1 (/ k 6)))) (range 0 12)))
    (filter (--> brick (! (covers brick (ahead (off_walls (prev ball)))))) (prev bricks))))
  (: paddle Paddle)
  (= paddle (initnext (Paddle (Position 4 11)) (prev paddle)))
  (: ball Ball)
  (= ball (initnext (Ball 1 1 (Position 3 5))
    (if (< (length bricks) (length (prev bricks)))
      then (updateObj (off_walls (prev ball)) "way_y" (- 0 (.. (off_walls (prev ball)) way_y)))
      else (if (is_caught (off_walls (prev ball)))
        then (updateObj (updateObj (off_walls (prev ball)) "way_y" -1) "way_x" (uniformChoice (list 1 0 -1)))
        else (flown (off_walls (prev ball)))))))

  (on left (= paddle (if (isWithinBounds (moveLeft (prev paddle))) then (moveLeft (prev paddle)) else (prev paddle))))
  (on right (= paddle (if (isWithinBounds (moveRight (prev paddle))) then (moveRight (prev paddle)) else (prev paddle)))))
