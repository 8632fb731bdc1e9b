; family: hidden state
; A train drives round and through a hill, where it cannot be seen. A click on the signal turns a switch inside the
; hill, so that the train comes out above or below; up and down start and stop it.
(program
  (= GRID_SIZE 12)
  (object Rail (Cell 0 0 "darkgray"))
  (object Train (list (Cell 0 0 "red")))
  (object Hill (map (--> spot (Cell (.. spot x) (.. spot y) "green")) (rect (Position 0 0) (Position 5 7))))
  (object Signal (: raised Bool) (Cell 0 0 (if raised then "white" else "yellow")))

  (: rails (List Rail))
  (= rails (initnext
    (map (--> spot (Rail spot))
      (concat (list (rect (Position 0 6) (Position 7 7)) (rect (Position 7 4) (Position 12 5)) (rect (Position 7 8) (Position 12 9)))))
    (prev rails)))
  (: is_up Bool)
  (= is_up (initnext false (prev is_up)))
  (: going Bool)
  (= going (initnext true (prev going)))
  (: train Train)
  (= train (initnext (Train (Position 0 6)) (if going then (driven (prev train)) else (prev train))))
  (: hill Hill)
  (= hill (initnext (Hill (Position 4 3)) (prev hill)))
  (: signal Signal)
  (= signal (initnext (Signal false (Position 1 2)) (updateObj (prev signal) "raised" false)))

  (= driven (fn (engine) (let
    (= spot (.. engine origin))
    (if (== (.. spot x) 11)
      then (Train (Position 0 6))
      else (if (== (.. spot x) 6)
        then (Train (Position 7 (if (prev is_up) then 4 else 8)))
        else (moveRight engine))))))

  (on (clicked signal) (let
    (= is_up (! (prev is_up)))
    (= signal (updateObj (prev signal) "raised" true))))
  (on up (= going true))
  (on down (= going false)))
