; family: counters
; capacity: 16
; Arrows move the player. Each coin that it takes is a bullet more, and a click fires a bullet
; upwards; how many are left is not shown. A bullet that meets the red target moves it on.
(program
  (= GRID_SIZE 16)
  (object Player (Cell 0 0 "blue"))
  (object Coin (Cell 0 0 "gold"))
  (object Bullet (Cell 0 0 "white"))
  (object Target (list (Cell 0 0 "red") (Cell 1 0 "red")))

  (= inside (fn (thing moved) (if (isWithinBounds moved) then moved else thing)))

  (: target Target)
  (= target (initnext (Target (Position 3 0)) (prev target)))
  (: coins (List Coin))
  (= coins (initnext
    (map (--> spot (Coin spot))
      (list (Position 3 9) (Position 6 12) (Position 10 10) (Position 12 13) (Position 14 8) (Position 8 6)))
    (filter (--> coin (! (intersects coin (prev player)))) (prev coins))))
  (: ammo Number)
  (= ammo (initnext 0 (+ (prev ammo) (- (length (prev coins)) (length coins)))))
  (: bullets (List Bullet))
  (= bullets (initnext (list)
    (filter (--> bullet (& (isWithinBounds bullet) (! (intersects bullet (prev target)))))
      (map moveUp (prev bullets)))))
  (: player Player)
  (= player (initnext (Player (Position 7 10)) (prev player)))

  (on left (= player (inside (prev player) (moveLeft (prev player)))))
  (on right (= player (inside (prev player) (moveRight (prev player)))))
  (on up (= player (inside (prev player) (moveUp (prev player)))))
  (on down (= player (inside (prev player) (moveDown (prev player)))))
  (on (intersects (map moveUp (prev bullets)) (prev target))
    (= target (Target (Position (% (+ (.. (.. (prev target) origin) x) 5) 14) 0))))
  (on (& clicked (> (prev ammo) 0)) (let
    (= ammo (- (prev ammo) 1))
    (= bullets (addObj (map moveUp (prev bullets)) (Bullet (.. (moveUp (prev player)) origin)))))))
