; family: movers
; capacity: 24
; A click adds a particle, and all particles walk at random.
(program
  (= GRID_SIZE 16)
  (object Particle (Cell 0 0 "blue"))

  (: particles (List Particle))
  (= particles (initnext (list (Particle (Position 8 8)))
    (updateObj (prev particles) (--> particle
      (updateObj particle "origin" (uniformChoice (adjPositions (.. particle origin))))))))

  (on (& clicked (< (length (prev particles)) 20))
    (= particles (addObj (prev particles) (Particle click)))))
