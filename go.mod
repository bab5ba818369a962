module github.com/laterq/later

go 1.26.0
