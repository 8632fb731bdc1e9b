; family: contagion
; Arrows move one of six people, a click on another takes that one instead; who it is cannot be
; seen. The sick infect those next to them.
(program
  (= GRID_SIZE 16)
  (object Person (: sick Bool) (: chosen Bool) (Cell 0 0 (if sick then "darkgreen" else "gray")))

  (= beside_sick (fn (person folk)
    (any (--> other (& (.. other sick) (adjacentTwoObjs person other 1))) folk)))
  (= spread (fn (folk)
    (map (--> person (updateObj person "sick" (| (.. person sick) (beside_sick person folk)))) folk)))
  (= is_chosen (fn (person) (.. person chosen)))

  (: people (List Person))
  (= people (initnext
    (list (Person true false (Position 2 4)) (Person false true (Position 5 10)) (Person false false (Position 7 3))
          (Person false false (Position 10 8)) (Person false false (Position 13 5)) (Person false false (Position 11 13)))
    (spread (prev people))))

  (on left (= people (updateObj (spread (prev people)) moveLeftNoCollision is_chosen)))
  (on right (= people (updateObj (spread (prev people)) moveRightNoCollision is_chosen)))
  (on up (= people (updateObj (spread (prev people)) moveUpNoCollision is_chosen)))
  (on down (= people (updateObj (spread (prev people)) moveDownNoCollision is_chosen)))
  (on (clicked people)
    (= people (map (--> person (updateObj person "chosen" (clicked person))) (prev people)))))
