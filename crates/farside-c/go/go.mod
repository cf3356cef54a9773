module farside

go 1.19
