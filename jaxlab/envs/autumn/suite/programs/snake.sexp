; family: movers
; capacity: 16
; A snake goes on in the direction of the last arrow and round the edges. Where it eats the apple it
; grows and another appears at a random place; where it bites itself it is short again.
(program
  (= GRID_SIZE 10)
  (object Link (: age Number) (Cell 0 0 (if (== age 0) then "limegreen" else "green")))
  (object Apple (Cell 0 0 "red"))

  (= wrapped (fn (spot) (Position (% (+ (.. spot x) 10) 10) (% (+ (.. spot y) 10) 10))))
  (= front (fn (links) (head (filter (--> link (== (.. link age) 0)) links))))
  (= older (fn (links) (filter (--> link (< (.. link age) size)) (map (--> link (updateObj link "age" (+ (.. link age) 1))) links))))
  (= bitten (fn (links) (any (--> link (& (> (.. link age) 0) (== (.. link origin) (.. (front links) origin)))) links)))

  (: heading Position)
  (= heading (initnext (Position 1 0) (prev heading)))
  (: apple Apple)
  (= apple (initnext (Apple (Position 7 5)) (prev apple)))
  (: size Number)
  (= size (initnext 3 (if (bitten (prev snake)) then 3 else (prev size))))
  (: snake (List Link))
  (= snake (initnext (list (Link 0 (Position 3 5)) (Link 1 (Position 2 5)) (Link 2 (Position 1 5)))
    (addObj (older (prev snake)) (Link 0 (wrapped (movePos (.. (front (prev snake)) origin) heading))))))

  (on (& left (!= (prev heading) (Position 1 0))) (= heading (Position -1 0)))
  (on (& right (!= (prev heading) (Position -1 0))) (= heading (Position 1 0)))
  (on (& up (!= (prev heading) (Position 0 1))) (= heading (Position 0 -1)))
  (on (& down (!= (prev heading) (Position 0 -1))) (= heading (Position 0 1)))
  (on (== (.. (front (prev snake)) origin) (.. (prev apple) origin)) (let
    (= size (min 12 (+ (prev size) 1)))
    (= apple (Apple (head (randomPositions GRID_SIZE 1)))))))
