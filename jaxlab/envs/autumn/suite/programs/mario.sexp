; family: counters
; capacity: 8
; Left and right move a jumper, up makes it jump three cells from the ground or from one of two moving steps. Each
; coin it takes is a bullet, a click fires one upwards, and two hits end the enemy that patrols the sky.
(program
  (= GRID_SIZE 12)
  (= background "white")
  (= FRAME_RATE 7)
  (object Jumper (: rise Number) (Cell 0 0 "red"))
  (object Step (: way Number) (list (Cell 0 0 "darkorange") (Cell 1 0 "darkorange") (Cell 2 0 "darkorange")))
  (object Coin (Cell 0 0 "gold"))
  (object Enemy (: lives Number) (: way Number) (list (Cell 0 0 "blue") (Cell 1 0 "blue")))
  (object Bullet (Cell 0 0 "mediumpurple"))

  (= patrolled (fn (thing) (let
    (= faced (if (isWithinBounds (move thing (Position (.. thing way) 0)))
      then thing
      else (updateObj thing "way" (- 0 (.. thing way)))))
    (move faced (Position (.. faced way) 0)))))
  (= kept (fn (thing moved) (if (& (isWithinBounds moved) (! (intersects moved steps))) then moved else thing)))
  (= carried (fn (thing)
    (if (> (.. thing rise) 0)
      then (kept (updateObj thing "rise" 0) (moveUp (updateObj thing "rise" (- (.. thing rise) 1))))
      else (kept thing (moveDown thing)))))
  (= stands (fn (thing) (== (.. (kept thing (moveDown thing)) origin) (.. thing origin))))

  (: steps (List Step))
  (= steps (initnext (list (Step 1 (Position 1 8)) (Step -1 (Position 7 5)))
    (if (== (% (prev clock) 3) 0) then (updateObj (prev steps) patrolled) else (prev steps))))
  (: clock Number)
  (= clock (initnext 0 (% (+ (prev clock) 1) 3)))
  (: coins (List Coin))
  (= coins (initnext
    (map (--> spot (Coin spot)) (list (Position 3 11) (Position 9 11) (Position 3 6) (Position 8 3)))
    (filter (--> coin (! (intersects coin (prev jumper)))) (prev coins))))
  (: ammo Number)
  (= ammo (initnext 0 (+ (prev ammo) (- (length (prev coins)) (length coins)))))
  (: enemies (List Enemy))
  (= enemies (initnext (list (Enemy 2 1 (Position 5 0)))
    (filter (--> enemy (> (.. enemy lives) 0))
      (map (--> enemy (patrolled (if (intersects enemy (prev bullets)) then (updateObj enemy "lives" (- (.. enemy lives) 1)) else enemy)))
        (prev enemies)))))
  (: bullets (List Bullet))
  (= bullets (initnext (list)
    (filter isWithinBounds (map moveUp (filter (--> bullet (! (intersects bullet (prev enemies)))) (prev bullets))))))
  (: jumper Jumper)
  (= jumper (initnext (Jumper 0 (Position 1 11)) (carried (prev jumper))))

  (on left (= jumper (kept (prev jumper) (moveLeft (prev jumper)))))
  (on right (= jumper (kept (prev jumper) (moveRight (prev jumper)))))
  (on (& up (stands (prev jumper))) (= jumper (kept (prev jumper) (moveUp (updateObj (prev jumper) "rise" 2)))))
  (on (& clicked (> (prev ammo) 0)) (let
    (= ammo (- (prev ammo) 1))
    (= bullets (addObj (filter isWithinBounds (map moveUp (prev bullets))) (Bullet (.. (moveUp (prev jumper)) origin)))))))
