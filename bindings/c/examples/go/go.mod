module nicstripe.example/backup

go 1.19
