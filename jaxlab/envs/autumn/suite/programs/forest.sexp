; family: contagion
; A click sets a tree on fire. Fire spreads to each neighbour of a burning tree with even chances, and a tree burns
; for three steps and leaves ashes; a click on ashes plants it anew.
(program
  (= GRID_SIZE 8)
  (object Tree (: heat Number)
    (Cell 0 0 (if (== heat 0) then "green" else (if (< heat 4) then "orangered" else "gray"))))

  (= burns (fn (tree) (& (> (.. tree heat) 0) (< (.. tree heat) 4))))
  (= at_risk (fn (tree trees_now) (any (--> other (& (burns other) (adjacentTwoObjs tree other 1))) trees_now)))
  (= aged (fn (tree trees_now)
    (if (burns tree)
      then (updateObj tree "heat" (+ (.. tree heat) 1))
      else (if (& (== (.. tree heat) 0) (at_risk tree trees_now))
        then (updateObj tree "heat" (uniformChoice (list 0 1)))
        else tree))))

  (: trees (List Tree))
  (= trees (initnext
    (map (--> spot (Tree 0 spot))
      (filter (--> spot (| (!= (.. spot x) 3) (== (.. spot y) 5))) (rect (Position 1 1) (Position 7 7))))
    (map (--> tree (aged tree (prev trees))) (prev trees))))

  (on (clicked trees)
    (= trees (updateObj (prev trees)
      (--> tree (updateObj tree "heat" (if (== (.. tree heat) 0) then 1 else (if (burns tree) then (.. tree heat) else 0))))
      (--> tree (clicked tree))))))
