; family: latches
; capacity: 64
; A click paints a cell, over older paint too. The arrows choose the colour, which is not shown
; until the next click.
(program
  (= GRID_SIZE 16)
  (object Dab (: shade String) (Cell 0 0 shade))

  (: shade_now String)
  (= shade_now (initnext "red" (prev shade_now)))
  (: dabs (List Dab))
  (= dabs (initnext (list) (prev dabs)))

  (= elsewhere (fn (list_of spot) (filter (--> dab (!= (.. dab origin) spot)) list_of)))

  (on up (= shade_now "red"))
  (on down (= shade_now "blue"))
  (on left (= shade_now "green"))
  (on right (= shade_now "yellow"))
  (on (& clicked (| (< (length (prev dabs)) 60) (clicked (prev dabs))))
    (= dabs (addObj (elsewhere (prev dabs) click) (Dab shade_now click)))))
