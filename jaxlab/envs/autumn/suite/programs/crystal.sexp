; family: contagion
; capacity: 32
; A click lets a particle loose, which walks at random until it is beside the crystal and becomes
; part of it. Up melts all but the seed.
(program
  (= GRID_SIZE 9)
  (object Crystal (Cell 0 0 "cyan"))
  (object Walker (Cell 0 0 "white"))

  (= touches (fn (walker crystals) (any (--> part (adjacentTwoObjs walker part 1)) crystals)))
  (= walked (fn (walker) (updateObj walker "origin" (uniformChoice (adjPositions (.. walker origin))))))

  (: crystal (List Crystal))
  (= crystal (initnext (list (Crystal (Position 4 4)))
    (addObj (prev crystal)
      (map (--> walker (Crystal (.. walker origin))) (filter (--> walker (touches walker (prev crystal))) (prev walkers))))))
  (: walkers (List Walker))
  (= walkers (initnext (list (Walker (Position 1 1)) (Walker (Position 7 2)))
    (map walked (filter (--> walker (! (touches walker (prev crystal)))) (prev walkers)))))

  (on (& clicked (< (+ (length (prev walkers)) (length (prev crystal))) 26))
    (= walkers (addObj (map walked (filter (--> walker (! (touches walker (prev crystal)))) (prev walkers))) (Walker click))))
  (on up (= crystal (list (Crystal (Position 4 4))))))
