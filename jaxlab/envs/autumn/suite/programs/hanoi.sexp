; family: selection
; A click on a post takes up its uppermost disk; the next click puts it on a post, unless a smaller
; one lies there. The lamp is lit while all three disks lie on the last post.
(program
  (= GRID_SIZE 7)
  (object Post (map (--> k (Cell 0 k "brown")) (range 0 4)))
  (object Disk (: size Number) (: post Number) (: held Bool) (Cell 0 0 (at (list "cyan" "blue" "mediumpurple") size)))
  (object Lamp (: lit Bool) (Cell 0 0 (if lit then "gold" else "darkgray")))

  (= lies_on (fn (disk p) (& (! (.. disk held)) (== (.. disk post) p))))
  (= below (fn (disk all_disks)
    (length (filter (--> other (& (lies_on other (.. disk post)) (> (.. other size) (.. disk size)))) all_disks))))
  (= placed (fn (all_disks)
    (map (--> disk (updateObj disk "origin"
        (Position (+ 1 (* 2 (.. disk post))) (if (.. disk held) then 0 else (- 5 (below disk all_disks))))))
      all_disks)))
  (= is_top (fn (disk p all_disks)
    (& (lies_on disk p) (! (any (--> other (& (lies_on other p) (< (.. other size) (.. disk size)))) all_disks)))))
  (= any_held (fn (all_disks) (any (--> disk (.. disk held)) all_disks)))
  (= may_drop (fn (disk p all_disks)
    (& (.. disk held) (! (any (--> other (& (lies_on other p) (< (.. other size) (.. disk size)))) all_disks)))))

  (: posts (List Post))
  (= posts (initnext (map (--> k (Post (Position (+ 1 (* 2 k)) 2))) (range 0 3)) (prev posts)))
  (: disks (List Disk))
  (= disks (initnext (placed (map (--> k (Disk k 0 false (Position 1 5))) (range 0 3))) (prev disks)))
  (: lamp Lamp)
  (= lamp (initnext (Lamp false (Position 6 6))
    (updateObj (prev lamp) "lit" (! (any (--> disk (! (lies_on disk 2))) disks)))))

  (on (& (clicked posts) (! (any_held (prev disks))))
    (= disks (placed (map (--> disk
      (if (is_top disk (/ (.. click x) 2) (prev disks)) then (updateObj disk "held" true) else disk)) (prev disks)))))
  (on (& (clicked posts) (any_held (prev disks)))
    (= disks (placed (map (--> disk
      (if (may_drop disk (/ (.. click x) 2) (prev disks))
        then (updateObj (updateObj disk "post" (/ (.. click x) 2)) "held" false)
        else disk)) (prev disks))))))
